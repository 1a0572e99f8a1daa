"""What a person sees while a run goes on, and after it."""
