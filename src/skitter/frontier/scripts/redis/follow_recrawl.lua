-- follow_recrawl: begin the pass that the first partition has begun. Idempotent. Returns the number of recrawls.
-- ARGV[5]: number of recrawls of the first partition
begin(true)
follow_recrawl(tonumber(ARGV[5]))
finish('')
return recrawls
