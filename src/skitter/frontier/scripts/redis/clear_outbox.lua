-- clear_outbox: remove requests from the outbox that are safe in their partitions.
-- ARGV[5]: ids
begin(false)
call_with_many('HDEL', OUTBOX, decode(ARGV[5]))
return 1
