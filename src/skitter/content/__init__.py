"""Optional: the main content of pages for text datasets, and near duplicates among items. Extraction needs trafilatura."""
