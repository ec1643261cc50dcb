-- assign: give slots other policies, after the rules of the job were changed.
-- ARGV[5]: names (slot, policy)
begin(false)
for _, name in ipairs(decode(ARGV[5])) do
  slot_of(name[1], name[2]).touched = true
end
return finish('')
