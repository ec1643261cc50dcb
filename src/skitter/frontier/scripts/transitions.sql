-- The state transitions of the embedded frontier. A statement that ends in VALUES (...) or IN (VALUES (...))
-- runs for many rows at once: its group of placeholders is repeated. All statements of a group commit run in
-- one transaction, in the order of this file: a row can be replaced, but a removed row never comes back.

-- name: dequeue
INSERT OR IGNORE INTO removed VALUES (?)

-- name: cancel_removal
DELETE FROM removed WHERE (seq) IN (VALUES (?))

-- name: enqueue
INSERT OR REPLACE INTO queue VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: pack
INSERT INTO packs VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: unpack
INSERT OR IGNORE INTO unpacked SELECT column1 FROM (VALUES (?)) JOIN packs
ON packs.seq = (SELECT max(seq) FROM packs WHERE seq <= column1) AND packs.seq + packs.amount > column1

-- name: delay
INSERT OR REPLACE INTO delayed VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: remove_dead
DELETE FROM dead WHERE (id) IN (VALUES (?))

-- name: add_dead
INSERT INTO dead VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: put_leases
INSERT OR REPLACE INTO leases VALUES (?, ?)

-- name: remove_leases
DELETE FROM leases WHERE (id) IN (VALUES (?))

-- name: add_slot
INSERT INTO slots (id, key) VALUES (?, ?)

-- name: set_slot_limits
INSERT INTO slots (id, key, min_delay, paused_until) VALUES (?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET min_delay = excluded.min_delay, paused_until = excluded.paused_until

-- name: set_slot_grants
INSERT INTO slots (id, key, grants) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET grants = excluded.grants

-- name: log_seen
INSERT INTO seen_log (kind, at, fingerprints) VALUES (?, ?, ?)

-- name: put_visit
INSERT INTO visits VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (fingerprint) DO UPDATE SET pass_number = excluded.pass_number, change = excluded.change, status = excluded.status,
since = excluded.since, url = excluded.url, ranges = excluded.ranges, memory = excluded.memory

-- name: mark_visit
UPDATE visits SET pass_number = new.column1, change = new.column2, status = new.column3
FROM (VALUES (?, ?, ?, ?)) AS new WHERE fingerprint = new.column4

-- name: update_visit
UPDATE visits SET pass_number = new.column1, change = new.column2, status = new.column3, memory = new.column4
FROM (VALUES (?, ?, ?, ?, ?)) AS new WHERE fingerprint = new.column5

-- name: extend_output
INSERT INTO outputs VALUES (?, ?, ?) ON CONFLICT (part, start) DO UPDATE SET stop = excluded.stop

-- name: set_counter
INSERT INTO counters VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: remove_stats
DELETE FROM stats WHERE (dimension, key) IN (VALUES (?, ?))

-- name: put_stats
INSERT OR REPLACE INTO stats VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: set_ban
INSERT OR REPLACE INTO bans VALUES (?, ?)

-- name: set_changes
INSERT OR REPLACE INTO settings_changes VALUES (?, ?)

-- name: put_note
INSERT OR REPLACE INTO notes VALUES (?, ?, ?)

-- name: put_job
INSERT OR REPLACE INTO job VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
