"""The store in MySQL and MariaDB. Its client is an extra."""
