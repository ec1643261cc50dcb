"""A store for MongoDB: items as documents. Needs the extra ``mongodb``."""
