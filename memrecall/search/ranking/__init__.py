"""Features, scores and calibration of search results."""
