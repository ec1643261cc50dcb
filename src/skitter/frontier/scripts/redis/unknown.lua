-- unknown: return 1 or 0 for each fingerprint: whether it is new.
-- ARGV[5]: fingerprints, concatenated
local fingerprints, reply = {}, {}
for at = 1, #ARGV[5], 16 do
  fingerprints[#fingerprints + 1] = sub(ARGV[5], at, at + 15)
end
look_ahead(fingerprints)
for i, fingerprint in ipairs(fingerprints) do
  reply[i] = is_known(fingerprint) and '0' or '1'
end
return table.concat(reply)
