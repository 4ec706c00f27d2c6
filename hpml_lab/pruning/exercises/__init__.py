"""The exercises of notebook 17, one module each; pruned_nets belongs to pruned_share."""
