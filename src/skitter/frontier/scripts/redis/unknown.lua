-- unknown: tell which fingerprints are new, where visits run out (SMISMEMBER serves where they do not).
-- ARGV: 5.. fingerprints
local answer = {}
for i = 5, #ARGV do
  answer[i - 4] = is_known(ARGV[i]) and 0 or 1
end
return answer
