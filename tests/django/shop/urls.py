"""Views of an order service, sync and async."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from django.contrib import admin
from django.db import connections, transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path
from tests.django.shop.jobs import ReserveStock
from tests.django.shop.models import Order

from queuert_django import get_client


def place(alias: str, number: int, fail: bool) -> str:
    Order(number=number).save(using=alias)
    chain = get_client(alias).start(connections[alias], ReserveStock(number=number))
    if fail:
        raise ValueError("after the job was started")
    return chain.id


def order(request: HttpRequest, alias: str, number: int) -> JsonResponse:
    """With ATOMIC_REQUESTS the request is the transaction."""
    return JsonResponse({"chain": place(alias, number, "fail" in request.GET)})


async def order_async(request: HttpRequest, alias: str, number: int) -> JsonResponse:
    def place_order() -> str:
        with transaction.atomic(using=alias):
            return place(alias, number, "fail" in request.GET)

    return JsonResponse({"chain": await sync_to_async(place_order)()})


urlpatterns: list[Any] = [
    path("admin/", admin.site.urls),
    path("orders/<str:alias>/<int:number>", order),
    path("async/<str:alias>/<int:number>", order_async),
]
