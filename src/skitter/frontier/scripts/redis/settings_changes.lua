-- settings_changes: return the settings that were changed while the job ran.
return call('HGET', JOB, 'changes')
