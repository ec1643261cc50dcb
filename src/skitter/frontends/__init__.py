"""Front ends: other ways than a spider class to describe a crawl. Each one builds a spider for the same engine."""
