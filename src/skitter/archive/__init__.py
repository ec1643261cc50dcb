"""Web archives: a job writes its responses to a WARC file, and a spider runs on one. Reading one needs the extra ``warc``."""
