-- compare_and_swap_note: store a note if the present note is as it was read. Returns 1 if it was stored.
-- ARGV: 5 key, 6 whether a note was read, 7 the note that was read, 8 the new note, 9 seconds
begin(false)
local note = call('HGET', NOTES, ARGV[5])
local held = note and struct.unpack('<d', note) > now
if held ~= (ARGV[6] == '1') or (held and sub(note, 9) ~= ARGV[7]) then
  return 0
end
call('HSET', NOTES, ARGV[5], pack('<d', now + tonumber(ARGV[9])) .. ARGV[8])
return 1
