"""From any log to transitions: readers, episodes, preprocessing, scores."""
