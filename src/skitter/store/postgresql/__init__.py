"""PostgreSQL: items as rows. Needs the extra ``postgresql``."""
