-- follow_recrawl: begin the pass that the first partition has begun. Idempotent.
-- ARGV[5]: number of recrawls
begin(true)
follow_recrawl(tonumber(ARGV[5]))
finish('')
return 1
