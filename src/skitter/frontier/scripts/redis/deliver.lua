-- deliver: add requests from other partitions. Each is added once, even if it is delivered several times. Returns the numbers
-- of new requests, of those for banned slots, and of those that a budget refuses.
-- ARGV: 5 '1' if they may have been delivered before, 6 names, entries, ids, which of the entries are seeds, 7 number of
--       recrawls to follow, see follow_recrawl()
begin(true)
follow_recrawl(tonumber(ARGV[7]))
local names, entries, ids, seeds = unpack(decode(ARGV[6]))
local fresh = {}
for i, entry in ipairs(entries) do
  -- A fingerprint that stays known cannot be added twice.
  local may_be_forgotten = byte(entry[3], 5) == 0 or config.visited_ttl or config.refetch_failed
  if not may_be_forgotten or call('ZADD', DELIVERED, 'NX', text(now), ids[i]) == 1 then
    entry.is_seed = seeds[i]
    fresh[#fresh + 1] = entry
  end
end
local added, refused, over = insert(names, fresh, ARGV[5] == '1', true)
finish('')
return {added, refused, over}
