-- set_state: set the requested state of the job. Returns the state in force.
-- ARGV[5]: state
begin(false)
call('HSET', JOB, 'state', ARGV[5])
meta[4] = ARGV[5]
return (current_state())
