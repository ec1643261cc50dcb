-- drop_dead_letters: delete dead letters. Returns their number twice, in the form of replay's reply.
-- ARGV: 5 numbers, or '' for all up to the number in ARGV[6]
begin(false)
local dropped = #take_dead(ARGV[5] ~= '' and decode(ARGV[5]), tonumber(ARGV[6]))
return finish(dropped .. ' ' .. dropped)
