"""To be read: the arithmetic of quantization, fake quantization, equalization, static int8 by PT2E, and the lecture's LeNet."""
