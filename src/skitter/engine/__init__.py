"""Engine: the worker's loop and the life cycle of a crawl."""
