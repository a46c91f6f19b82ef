from __future__ import annotations

from django.urls import path

from django_orders.shop import views

urlpatterns = [
    path("orders", views.place_order),
    path("orders/async", views.place_order_async),
    path("orders/<int:order_id>", views.show_order),
    path("parcels/<str:chain_id>", views.wait_for_parcel),
]
