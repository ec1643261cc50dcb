-- release: return leases unused.
-- ARGV[5]: ids
begin(false)
for _, id in ipairs(decode(ARGV[5])) do
  local lease = lease_of(id)
  if lease then
    local name, key, rest = end_lease(lease)
    enqueue_again(name, key, rest, now)
  end
end
return finish('')
