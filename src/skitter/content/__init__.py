"""Optional: the main content of pages for text data sets, and near duplicates among items. Extraction needs trafilatura."""
