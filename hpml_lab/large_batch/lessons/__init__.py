"""To be read: rules that scale the rate, the range test, and what papers and libraries mean by LARS, LAMB and NovoGrad."""
