// Every kernel: its name, the op whose record it reads, its body, and the bytes of shared memory it uses.
KERNEL(rms_norm, rms_norm, rms_norm, 32)
