"""Reading for people and programs: lists with filters, order and totals. One module a stage; nothing here writes."""
