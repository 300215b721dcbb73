"""The body of Llama-shaped models for training on CPUs: fewer passes over memory than the general code.

On a CPU a small model in bfloat16 spends most of an update outside matrix products: norms, rotations, conversions
and a slow attention backward pass. Here each of these is one autograd function with its backward pass written out.
"""
