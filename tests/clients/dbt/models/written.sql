{{ config(materialized='sink', with={'connector': 'file', 'path': 'written.csv', 'overwrite': 'true'}) }}
SELECT ten, numbers FROM {{ ref('tens') }} WHERE ten >= 0
