-- compare_and_swap_note: keep a shared note if the one kept now is as it was read; answers 1 if so.
-- ARGV: 5 key, 6 whether there was one, 7 it, 8 the new one, 9 seconds
begin(false)
local note = call('HGET', NOTES, ARGV[5])
local held = note and struct.unpack('<d', note) > now
if held ~= (ARGV[6] == '1') or (held and sub(note, 9) ~= ARGV[7]) then return 0 end
call('HSET', NOTES, ARGV[5], pack('<d', now + tonumber(ARGV[9])) .. ARGV[8])
return 1
