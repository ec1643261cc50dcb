-- get_note: read a shared note, if it has not run out. A note is: time(8, double) value.
-- ARGV[5]: key
local note = call('HGET', NOTES, ARGV[5])
return note and struct.unpack('<d', note) > now and sub(note, 9) or false
