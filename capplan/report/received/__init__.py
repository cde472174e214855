"""Files of results that come back: read, compared, verified."""
