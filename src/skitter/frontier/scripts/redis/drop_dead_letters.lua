-- drop_dead_letters: forget dead letters. Returns how many were taken out, and the same again, as replay does.
-- ARGV: 5 numbers, or '' for all up to the number that is 6
begin(false)
local dropped = #exhume(ARGV[5] ~= '' and decode(ARGV[5]), tonumber(ARGV[6]))
return finish(dropped .. ' ' .. dropped)
