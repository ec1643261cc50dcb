-- The state transitions of the embedded frontier. A statement that ends in VALUES (...) or IN (VALUES (...))
-- is run for many rows at once: its group of marks is repeated. All statements that one group commit
-- gathers run in one transaction, in the order of this file, so that a row can be replaced but what is
-- removed never comes back.

-- name: dequeue
DELETE FROM queue WHERE (seq) IN (VALUES (?))

-- name: enqueue
INSERT OR REPLACE INTO queue VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: delay
INSERT OR REPLACE INTO delayed VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: unbury
DELETE FROM dead WHERE (id) IN (VALUES (?))

-- name: bury
INSERT INTO dead VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: note_lease
INSERT OR REPLACE INTO leases VALUES (?, ?)

-- name: end_lease
DELETE FROM leases WHERE (id) IN (VALUES (?))

-- name: new_slot
INSERT INTO slots (id, key) VALUES (?, ?)

-- name: limit_slot
INSERT INTO slots (id, key, floor, held_until) VALUES (?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET floor = excluded.floor, held_until = excluded.held_until

-- name: grant_slot
INSERT INTO slots (id, key, grants) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET grants = excluded.grants

-- name: log_seen
INSERT INTO seen_log (kind, at, fingerprints) VALUES (?, ?, ?)

-- name: know_key
INSERT OR REPLACE INTO seen_keys VALUES (?, ?)

-- name: mark_output
INSERT INTO outputs VALUES (?, ?, ?) ON CONFLICT (part, start) DO UPDATE SET stop = excluded.stop

-- name: count
INSERT INTO counters VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: drop_tally
DELETE FROM tallies WHERE ("group", key) IN (VALUES (?, ?))

-- name: tally
INSERT OR REPLACE INTO tallies VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: ban
INSERT OR REPLACE INTO bans VALUES (?, ?)

-- name: change
INSERT OR REPLACE INTO changes VALUES (?, ?)

-- name: note
INSERT OR REPLACE INTO notes VALUES (?, ?, ?)

-- name: job
INSERT OR REPLACE INTO job VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
