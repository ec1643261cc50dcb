-- drop: forget dead letters. Returns how many.
-- ARGV: 5 numbers, or '' for all up to the number that is 6
begin(false)
return finish(tostring(#exhume(ARGV[5] ~= '' and decode(ARGV[5]), tonumber(ARGV[6]))))
