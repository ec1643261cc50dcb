-- slots: read some slots.
-- ARGV: 5 their names
local found = {}
for i, name in ipairs(decode(ARGV[5])) do
  found[i] = status_of(name)
end
return found
