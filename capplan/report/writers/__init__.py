"""Files beside the page of a result."""
