-- complete: note that all partitions of the job are there. One that is missing later has been lost.
begin(false)
call('HSET', JOB, 'complete', '1')
return 1
