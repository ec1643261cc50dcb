"""Web archives: a job writes its responses to a WARC file, and a spider runs on one. Needs the extra ``warc``."""
