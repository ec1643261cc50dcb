"""Web archives: jobs can write their responses to a WARC file and read from one. Reading needs the extra ``warc``."""
