-- settle_seeds: turn a claimed batch into requests and dead letters. Returns 1, or 0 if another worker has the batch,
-- and the number of recrawls.
-- ARGV: 5 token, 6 names, entries, rejected (entry, error), outbox
begin(true)
if call('HDEL', CLAIMED, ARGV[5]) == 0 then
  return finish('0 ' .. recrawls)
end
local names, entries, rejected, outbox = unpack(decode(ARGV[6]))
insert(names, entries)
put_outbox(outbox)
for _, one in ipairs(rejected) do
  local entry = one[1]
  local rank = entry[2] ~= '' and entry[2] or pack('>I8', 0)
  mark_dead(names[entry[1]][1], rank .. next_number(), entry[3], one[2])
  count('failed/seed', 1)
end
return finish('1 ' .. recrawls)
