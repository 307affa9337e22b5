"""From a log to a decision: propose roles of columns, train candidates, judge them, and write one page."""
