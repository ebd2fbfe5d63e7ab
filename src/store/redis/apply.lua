-- All the Lua there is: compares the revision of an aggregate, then writes its change whole.
-- Its first line, the flags, is put before it by apply.rs.
--
-- KEYS  1 the rows (hash)  2 the shard's list of aggregates (zset)  3… the indexes (zsets)
-- ARGV  1 revision  2 expected revision, '' for none  3 name of the aggregate
--       4 channel of hints  5 the writer's own channel, '' where nobody can say who hears it
--       6 what is said, '' for nothing  7… lists, each after its length:
--       for each index scores to set with their members, members to remove;
--       fields to set with their values, fields to remove
--
-- Everything that can fail comes before the first write: a script is never taken back. The first
-- index needs no look, since it is written first.

local stored = redis.call('HGET', KEYS[1], '')
if stored == ARGV[1] then return 2 end
if (stored or '') ~= ARGV[2] then return 0 end
redis.call('ZCARD', KEYS[2])
for i = 4, #KEYS do redis.call('ZCARD', KEYS[i]) end
if ARGV[6] ~= '' then
  -- The writer has told itself. To say it to nobody else costs it as much as a small read.
  local alone = false
  if ARGV[5] ~= '' then
    local ears = redis.call('PUBSUB', 'NUMSUB', ARGV[4], ARGV[5])
    alone = ears[2] == ears[4]
  end
  if not alone then redis.call('PUBLISH', ARGV[4], ARGV[6]) end
end

local at = 7
-- In pieces: a call takes some thousand values at most.
local function each(command, key)
  local first, last = at + 1, at + tonumber(ARGV[at])
  for from = first, last, 1000 do
    redis.call(command, key, unpack(ARGV, from, math.min(from + 999, last)))
  end
  at = last + 1
end

for i = 3, #KEYS do
  each('ZADD', KEYS[i])
  each('ZREM', KEYS[i])
end
if not stored then redis.call('ZADD', KEYS[2], 0, ARGV[3]) end
each('HSET', KEYS[1])
each('HDEL', KEYS[1])
return 1
