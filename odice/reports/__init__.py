"""Pages, figures and curves: what a run or a data set looks like to people."""
