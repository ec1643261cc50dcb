-- get_note: return a note that has not expired. Format of a note: expiry(8, double) value.
-- ARGV[5]: key
local note = call('HGET', NOTES, ARGV[5])
return note and struct.unpack('<d', note) > now and sub(note, 9) or false
