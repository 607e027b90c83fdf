"""Step time: the operations of a traced step on a roofline, corrected by one measured step where there is one."""
