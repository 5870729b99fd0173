"""What vocabularies cost, and mixtures under which languages cost the same."""
