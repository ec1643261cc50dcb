-- unknown: tell which fingerprints are new. Returns a 1 or a 0 for each.
-- ARGV[5]: fingerprints, one after the other
local fingerprints, answer = {}, {}
for at = 1, #ARGV[5], 16 do
  fingerprints[#fingerprints + 1] = sub(ARGV[5], at, at + 15)
end
look_ahead(fingerprints)
for i, fingerprint in ipairs(fingerprints) do
  answer[i] = is_known(fingerprint) and '0' or '1'
end
return table.concat(answer)
