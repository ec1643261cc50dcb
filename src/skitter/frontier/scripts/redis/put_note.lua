-- put_note: store a note.
-- ARGV: 5 key, 6 value, 7 seconds
begin(false)
return call('HSET', NOTES, ARGV[5], pack('<d', now + tonumber(ARGV[7])) .. ARGV[6])
