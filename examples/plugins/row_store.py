"""``-o rows:FILE``: one method, ``save``. Items are in a table of one's own, each exactly once."""

import json
import sqlite3


class RowStore:
    def __init__(self, address):
        self.database = sqlite3.connect(address.rest, timeout=30)

    def open(self):  # may be omitted, as close()
        self.database.execute("CREATE TABLE IF NOT EXISTS pages (page TEXT, item TEXT)")

    def save(self, items, page):
        with self.database:  # one transaction
            self.database.execute("DELETE FROM pages WHERE page = ?", [page])
            rows = [(page, json.dumps(item)) for item in items]
            self.database.executemany("INSERT INTO pages VALUES (?, ?)", rows)

    def close(self):
        self.database.close()
