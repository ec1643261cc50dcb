-- set_state: set what the fleet is to do. Returns the state that holds now.
-- ARGV[5]: state
begin(false)
call('HSET', JOB, 'state', ARGV[5])
return (current_state())
